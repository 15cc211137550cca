-- +goose Up

alter table agent_model_prices add column source text; -- the file that the price is from; null: somebody has entered it

-- One row per message.end, with what it cost: as its provider reports, or by the price of its day; null where neither is known.
create view agent_v_costs as
select u.koder_user_id, u.run_id, u.child_id, u.seq, u.day, nullif(u.model, '') as model, u.reported, u.input_tokens, u.output_tokens,
    u.cache_read_tokens, u.cache_write_tokens,
    case when u.cost is not null then u.cost when u.reported then (
        select (u.input_tokens * p.input + u.output_tokens * p.output + u.cache_read_tokens * p.cache_read
            + u.cache_write_tokens * p.cache_write) / 1000000
        from agent_model_prices p where p.valid_from <= u.day
            and u.model like replace(replace(replace(replace(p.model, '\', '\\'), '_', '\_'), '%', '\%'), '*', '%') escape '\'
        order by length(p.model) desc, p.valid_from desc limit 1) end as cost
from agent_v_usage u;
