-- +goose Up

-- As before, but the model, which is looked up in the events, is not looked up again for each price: LIMIT holds it.
drop view agent_v_costs;
create view agent_v_costs as
select u.koder_user_id, u.run_id, u.child_id, u.seq, u.day, nullif(u.model, '') as model, u.reported, u.input_tokens, u.output_tokens,
    u.cache_read_tokens, u.cache_write_tokens,
    case when u.cost is not null then u.cost when u.reported then (
        select (u.input_tokens * p.input + u.output_tokens * p.output + u.cache_read_tokens * p.cache_read
            + u.cache_write_tokens * p.cache_write) / 1000000
        from (select u.model as model, u.day as day limit 1) k join agent_model_prices p on p.valid_from <= k.day
            and k.model like replace(replace(replace(replace(p.model, '\', '\\'), '_', '\_'), '%', '\%'), '*', '%') escape '\'
        order by length(p.model) desc, p.valid_from desc limit 1) end as cost
from agent_v_usage u;
